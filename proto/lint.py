"""`buf lint` over the contracts, on an image that protoc builds (buf's own module registry is not needed)."""

from __future__ import annotations

import importlib.resources
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
sys.path.insert(0, str(HERE.parent / "libs/contracts"))


def main() -> int:
    """Build the image, lint it, return buf's exit status."""
    from protogen import validate_descriptor_set

    sources = sorted(str(p.relative_to(HERE)) for p in HERE.rglob("*.proto"))
    well_known = importlib.resources.files("grpc_tools") / "_proto"
    with tempfile.TemporaryDirectory() as folder:
        described = Path(folder) / "validate.binpb"
        described.write_bytes(validate_descriptor_set())
        image = Path(folder) / "image.binpb"
        find = [f"--descriptor_set_in={described}", f"-I{HERE}", f"-I{well_known}"]
        build = ["--include_imports", "--include_source_info", f"--descriptor_set_out={image}"]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *find, *build, *sources], check=True)
        config = (
            '{"version":"v1","lint":{"use":["STANDARD","COMMENT_SERVICE","COMMENT_RPC"],'
            '"ignore":["buf/validate","google"]}}'
        )
        return subprocess.run(
            [str(BIN / "buf"), "lint", str(image), "--config", config], check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
