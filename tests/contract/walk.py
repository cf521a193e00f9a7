"""Every method of every service in the contracts, found by walking the generated package."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hopline
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from hopline.common.v1 import options_pb2


def _modules() -> list[Any]:
    names = set()
    for folder in map(Path, hopline.__path__):
        for file in folder.rglob("*_pb2.py"):
            names.add(".".join(("hopline", *file.relative_to(folder).with_suffix("").parts)))
    return [importlib.import_module(name) for name in sorted(names)]


@dataclass(frozen=True)
class Method:
    """A method of the contract."""

    descriptor: MethodDescriptor

    @property
    def service(self) -> ServiceDescriptor:
        return self.descriptor.containing_service

    @property
    def path(self) -> str:
        return f"/{self.service.full_name}/{self.descriptor.name}"

    @property
    def declared(self) -> bool:
        return bool(self.descriptor.GetOptions().HasExtension(options_pb2.rules))

    @property
    def rules(self) -> options_pb2.CallRules:
        return self.descriptor.GetOptions().Extensions[options_pb2.rules]

    @property
    def allowed(self) -> set[str]:
        """The kinds of principal it declares, in lower case."""
        names = [options_pb2.PrincipalKind.Name(kind) for kind in self.rules.allow]
        return {name.removeprefix("PRINCIPAL_KIND_").lower() for name in names}

    @property
    def request(self) -> type[Any]:
        return message_factory.GetMessageClass(self.descriptor.input_type)

    @property
    def response(self) -> type[Any]:
        return message_factory.GetMessageClass(self.descriptor.output_type)


SERVICES: list[ServiceDescriptor] = sorted(
    (each for module in _modules() for each in module.DESCRIPTOR.services_by_name.values()),
    key=lambda service: service.full_name,
)
METHODS = [Method(each) for service in SERVICES for each in service.methods]
PATHS = [method.path for method in METHODS]


def registrar(service: ServiceDescriptor) -> Any:
    """Return the generated function that adds a servicer of this service to a server."""
    module = service.file.name.removesuffix(".proto").replace("/", ".") + "_pb2_grpc"
    return getattr(importlib.import_module(module), f"add_{service.name}Servicer_to_server")
