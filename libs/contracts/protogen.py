"""Generates the Python side of the contracts with protoc.

`buf/validate/validate.proto` is not on any registry as a file: its descriptor is taken out of the
protovalidate wheel and given to protoc as a descriptor set.
"""

from __future__ import annotations

import importlib.resources
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PROTO = HERE.parent.parent / "proto"
OUT = HERE / "generated"


def validate_descriptor_set() -> bytes:
    """Return a FileDescriptorSet with buf/validate/validate.proto and what it imports."""
    from google.protobuf import (
        descriptor_pb2,
        duration_pb2,
        field_mask_pb2,
        timestamp_pb2,
    )
    from protovalidate._gen.buf.validate import validate_pb

    files = descriptor_pb2.FileDescriptorSet()
    for module in (descriptor_pb2, duration_pb2, field_mask_pb2, timestamp_pb2):
        files.file.add().ParseFromString(module.DESCRIPTOR.serialized_pb)
    files.file.add().ParseFromString(validate_pb.desc().proto.to_binary())
    return files.SerializeToString()


def protoc(arguments: list[str]) -> None:
    """Run grpcio-tools' protoc in a process of its own, so that a failure shows protoc's words."""
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *arguments], check=True)


def generate(out: Path = OUT) -> None:
    """Write messages, stubs and their type information for every contract into `out`."""
    sources = sorted(str(p.relative_to(PROTO)) for p in PROTO.rglob("*.proto"))
    well_known = str(importlib.resources.files("grpc_tools") / "_proto")
    with tempfile.TemporaryDirectory() as folder:
        described = Path(folder) / "validate.binpb"
        described.write_bytes(validate_descriptor_set())
        fresh = Path(folder) / "generated"
        fresh.mkdir()
        find = [f"--descriptor_set_in={described}", f"-I{PROTO}", f"-I{well_known}"]
        messages = [f"--plugin=protoc-gen-mypy={sibling('protoc-gen-mypy')}"]
        messages += [f"--python_out={fresh}", f"--mypy_out={fresh}"]
        services = [f"--plugin=protoc-gen-mypy_grpc={sibling('protoc-gen-mypy_grpc')}"]
        services += [f"--grpc_python_out={fresh}", f"--mypy_grpc_out={fresh}"]
        protoc([find[0], *messages, "buf/validate/validate.proto"])
        protoc([*find, *messages, *services, *sources])
        for package in ("hopline", "buf"):
            (fresh / package / "py.typed").touch()
        if out.exists():
            shutil.rmtree(out)
        shutil.copytree(fresh, out)


def sibling(script: str) -> Path:
    """Return a console script of the build environment, which need not be on PATH."""
    return Path(sys.executable).parent / script


if __name__ == "__main__":
    generate()
