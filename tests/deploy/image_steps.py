"""The steps of deploy/Dockerfile on a copy of this machine: what an engine would run, in its order.

Run in a file system of its own (`unshare -m`): `python image_steps.py FOLDER`. The copy is an overlay, so
that nothing of this machine changes; its own Python stands for the base image's.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Image:
    """What has been said and done so far."""

    def __init__(self, folder: Path) -> None:
        for name in ("upper", "work", "root"):
            (folder / name).mkdir()
        self.root = folder / "root"
        layers = f"lowerdir=/,upperdir={folder / 'upper'},workdir={folder / 'work'}"
        _run("mount", "-t", "overlay", "overlay", "-o", layers, str(self.root))
        for name in ("proc", "dev"):
            _run("mount", "--rbind", f"/{name}", str(self.root / name))
        # The Python that stands for the image's own is root's on this machine.
        (self.root / "root").chmod(0o755)
        python = self.root / "usr" / "local" / "bin" / "python"
        python.unlink(missing_ok=True)
        python.write_text(f'#!/bin/sh\nexec {Path(sys.executable).resolve()} "$@"\n')
        python.chmod(0o755)
        # What sets an image up is in the folders of root, which are not in everybody's path.
        os.environ["PATH"] = f"/usr/local/bin:{os.environ['PATH']}:/usr/sbin:/sbin"
        self.env = dict(os.environ)
        self.where = "/"
        self.user = "0:0"
        self.probe: list[str] = []
        self.entry: list[str] = []

    def run(self, words: list[str], *, user: str = "0:0", **more: str) -> subprocess.CompletedProcess[str]:
        """Run words in the image as a user."""
        uid, gid = user.split(":")
        return subprocess.run(
            ["chroot", f"--userspec={uid}:{gid}", "--groups=", str(self.root), *words],
            env={**self.env, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def step(self, word: str, rest: str) -> None:
        """Do one instruction."""
        if word == "RUN":
            done = self.run(["sh", "-c", f"cd {shlex.quote(self.where)} && {rest}"])
            assert done.returncode == 0, f"{rest}\n{done.stdout}"
        elif word == "WORKDIR":
            self.where = rest
            (self.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif word == "ENV":
            for pair in shlex.split(rest):
                name, _, value = pair.partition("=")
                self.env[name] = value.replace("$PATH", self.env["PATH"])
        elif word == "COPY" and not rest.startswith("--from="):
            *sources, target = rest.split()
            for source in sources:
                _copy(ROOT / source, self.root / self.where.lstrip("/") / target, many=len(sources) > 1)
        elif word == "USER":
            self.user = rest
        elif word == "HEALTHCHECK":
            self.probe = json.loads(rest[rest.index("[") :])
        elif word == "ENTRYPOINT":
            self.entry = json.loads(rest)


def _copy(source: Path, target: Path, *, many: bool) -> None:
    if source.is_dir():
        # As .dockerignore has it.
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("generated", "__pycache__"))
    else:
        shutil.copy(source, target / source.name if many else target)


def _run(*words: str) -> None:
    subprocess.run(words, check=True)


def main(folder: Path) -> None:
    """Do every step, then use what came of it as the image's user."""
    image = Image(folder)
    text = re.sub(r"\\\n", " ", (ROOT / "deploy" / "Dockerfile").read_text())
    for line in text.splitlines():
        word, _, rest = line.strip().partition(" ")
        if word and not word.startswith("#"):
            image.step(word, rest.strip())
    said = image.run([*image.entry, "--version"], user=image.user)
    print("version:", said.stdout.strip())
    who = image.run(["id", "-u"], user=image.user).stdout.strip()
    print("user:", who)
    written = image.run(["sh", "-c", "echo x >> /opt/hopline/bin/hopline"], user=image.user)
    print("writes to the program:", written.returncode == 0)
    print("tests are in it:", image.run([*image.entry[:0], "python", "-c", "import pytest"]).returncode == 0)
    script = (
        "hopline up --any-port & up=$!; i=0;"
        " until hopline doctor --quiet > /dev/null 2>&1; do sleep 0.2; i=$((i+1)); test $i -lt 300; done;"
        " hopline agent create echo > /dev/null && hopline db check && kill $up && wait $up; echo ended $?"
    )
    served = image.run(["sh", "-c", script], user=image.user, HOME="/data")
    print(served.stdout)
    unhealthy = image.run(image.probe, user=image.user, HOPLINE_METRICS="0.0.0.0:1")
    print("probe where nothing runs:", unhealthy.returncode)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
