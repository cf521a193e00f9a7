"""What every method of every service has to declare."""

from __future__ import annotations

import pytest
from hopline.common.v1 import options_pb2

from tests.contract.walk import METHODS, PATHS, SERVICES, Method

each_method = pytest.mark.parametrize("method", METHODS, ids=PATHS)

NEEDED = {
    "hopline.hooks.v1.HookService",
    "hopline.hooks.v1.ExtensionService",
    "hopline.quota.v1.AdmissionService",
    "hopline.quota.v1.CreditService",
    "hopline.quota.v1.UsageService",
    "hopline.registry.v1.AgentService",
    "hopline.registry.v1.CrewService",
    "hopline.registry.v1.IdentityService",
    "hopline.registry.v1.ModelService",
    "hopline.registry.v1.PluginService",
    "hopline.registry.v1.VisibilityService",
    "hopline.registry.v1.WorkspaceService",
    "hopline.relay.v1.AuditService",
    "hopline.relay.v1.DelegationService",
    "hopline.relay.v1.EscalationService",
    "hopline.relay.v1.MessageService",
    "hopline.relay.v1.PluginSessionService",
    "hopline.relay.v1.PluginToolService",
    "hopline.relay.v1.ScheduleService",
    "hopline.relay.v1.SessionService",
    "hopline.relay.v1.ToolService",
    "hopline.relay.v1.WebhookService",
    "hopline.runtime.v1.TunnelService",
}
# Whoever has no credential yet needs these to get one, or to check one.
PUBLIC = {
    "/hopline.registry.v1.IdentityService/Authenticate",
    "/hopline.registry.v1.IdentityService/GetKeys",
}


def test_the_walk_finds_every_service() -> None:
    assert {service.full_name for service in SERVICES} >= NEEDED


@each_method
def test_every_method_says_who_may_call_it(method: Method) -> None:
    assert method.declared, f"{method.path} has no (hopline.common.v1.rules)"
    assert bool(method.rules.allow) != method.rules.public, "either kinds of principal or `public`"


@each_method
def test_every_kind_allowed_is_named_once_and_exists(method: Method) -> None:
    kinds = list(method.rules.allow)
    assert len(set(kinds)) == len(kinds)
    assert set(kinds) <= set(options_pb2.PrincipalKind.values()) - {options_pb2.PRINCIPAL_KIND_UNSPECIFIED}


@each_method
def test_every_method_says_whether_it_may_be_retried(method: Method) -> None:
    assert method.rules.retry in set(options_pb2.RetrySafety.values()) - {
        options_pb2.RETRY_SAFETY_UNSPECIFIED
    }


@each_method
def test_what_is_safe_by_request_id_takes_one(method: Method) -> None:
    takes = "request_id" in method.descriptor.input_type.fields_by_name
    assert takes == (method.rules.retry == options_pb2.RETRY_SAFETY_BY_REQUEST_ID)


@each_method
def test_a_method_that_waits_has_a_deadline_that_outlasts_the_wait(method: Method) -> None:
    if "wait_seconds" in method.descriptor.input_type.fields_by_name:
        assert method.rules.default_deadline_seconds > 50


@each_method
def test_every_list_is_paged(method: Method) -> None:
    if method.descriptor.name.startswith("List"):
        assert {"page_size", "page_token"} <= set(method.descriptor.input_type.fields_by_name)
        assert "next_page_token" in method.descriptor.output_type.fields_by_name


@each_method
def test_no_request_names_its_caller(method: Method) -> None:
    fields = set(method.descriptor.input_type.fields_by_name)
    assert not fields & {"caller", "caller_id", "principal", "principal_id", "sender", "sender_id"}


def test_only_the_exchange_of_credentials_is_public() -> None:
    assert {method.path for method in METHODS if method.rules.public} == PUBLIC


def test_admission_and_the_change_feed_are_for_services_alone() -> None:
    inner = [method for method in METHODS if method.service.name == "AdmissionService"]
    inner += [method for method in METHODS if method.descriptor.name == "WatchChanges"]
    assert len(inner) == 8
    for method in inner:
        assert method.allowed == {"service"}, method.path


def test_agents_may_call_no_write_of_the_registry() -> None:
    for method in METHODS:
        if method.service.file.package == "hopline.registry.v1" and "agent" in method.allowed:
            assert method.rules.retry == options_pb2.RETRY_SAFETY_READ, method.path
