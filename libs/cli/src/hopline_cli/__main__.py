"""The `hopline` command. `hopline mcp` takes a short cut: its client waits for every import."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command given on the command line and exit with its status."""
    if sys.argv[1:] == ["mcp"]:
        from hopline_cli.pipe import run

        sys.exit(run())
    from hopline_cli.app import run_app

    sys.exit(run_app(sys.argv[1:]))


if __name__ == "__main__":
    main()
