"""Scrapes, read as Prometheus reads them."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import promql_parser
from prometheus_client.parser import text_string_to_metric_families

from tests.support.mesh_process import MeshProcess

Series = dict[str, list[tuple[Mapping[str, str], float]]]


def get(url: str, **headers: str) -> tuple[int, str]:
    """Return status and body of a GET, past any proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def series(text: str) -> Series:
    """Return all samples by name."""
    found: Series = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


async def scrape(mesh: MeshProcess) -> Series:
    """Scrape a mesh."""
    status, text = await asyncio.to_thread(get, f"{mesh.endpoints['metrics']}/metrics")
    assert status == 200, text
    return series(text)


def value(found: Series, name: str, **labels: str) -> float:
    """Return the sum of the samples with these labels."""
    return sum(
        number
        for given, number in found.get(name, [])
        if all(given.get(key) == wanted for key, wanted in labels.items())
    )


def selectors(expression: Any) -> Iterator[Any]:
    """Yield the vector selectors of a parsed query."""
    found: list[Any] = []

    def visit(node: Any) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)
        return True

    promql_parser.walk(expression, visit)
    yield from found


def grouped(expression: Any) -> Iterator[str]:
    """Yield the labels that a parsed query groups by."""
    found: list[str] = []

    def visit(node: Any) -> bool:
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            found.extend(node.modifier.labels)
        return True

    promql_parser.walk(expression, visit)
    yield from found


def panels(dashboard: Path) -> Iterator[tuple[str, str, str]]:
    """Yield title, query and legend of everything that a dashboard asks for."""
    found = json.loads(dashboard.read_text())
    for panel in found["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"], target["legendFormat"]
