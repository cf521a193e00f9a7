"""Work that is handed on without waiting for it: children and their reports, standing conversations."""

from __future__ import annotations

import uuid
from typing import Any

from hopline.relay.v1 import delegation_pb2 as pb

from hopline_client import crews
from hopline_client.actions import Actions, json_text, make_request
from hopline_client.crews import Child, Reported, Said, Spoken


class Delegating(Actions):
    """Actions of a caller that hands work to others."""

    async def start_subagent(
        self, agent: str, task: str, *, fire_and_forget: bool = False, request_id: str = ""
    ) -> Child:
        """Start an agent on a task, beside this one; its report comes later as a message.

        `outcome` says whether it was `created`, is `forbidden`, or would be one too many in a row.
        """
        request = make_request(
            pb.StartSubagentRequest,
            agent=agent,
            task=task,
            is_fire_and_forget=fire_and_forget,
            request_id=request_id or str(uuid.uuid4()),
        )
        return crews.child((await self._call("start_subagent", request)).start)

    async def start_self_subagent(
        self, task: str, *, fire_and_forget: bool = False, request_id: str = ""
    ) -> Child:
        """Start a copy of this agent on a task, in a session of its own."""
        request = make_request(
            pb.StartSelfSubagentRequest,
            task=task,
            is_fire_and_forget=fire_and_forget,
            request_id=request_id or str(uuid.uuid4()),
        )
        return crews.child((await self._call("start_self_subagent", request)).start)

    async def report_to_caller(self, text: str, *, payload: Any = None, request_id: str = "") -> Reported:
        """Report to whoever started this session, or asked for what it works on; that one is woken."""
        request = make_request(
            pb.ReportToCallerRequest,
            text=text,
            payload_json="" if payload is None else json_text("payload", payload),
            request_id=request_id or str(uuid.uuid4()),
        )
        return crews.reported(await self._call("report_to_caller", request))

    async def message_agent(
        self, agent: str, text: str, *, payload: Any = None, request_id: str = ""
    ) -> Spoken:
        """Write into the one conversation that this agent has with another; the answer comes as a message."""
        request = make_request(
            pb.MessageAgentRequest,
            agent=agent,
            text=text,
            payload_json="" if payload is None else json_text("payload", payload),
            request_id=request_id or str(uuid.uuid4()),
        )
        return crews.spoken(await self._call("message_agent", request))

    async def send_message_to_session(self, session_id: str, text: str, *, request_id: str = "") -> Said:
        """Say something in a session: of one's own, of a child, or one that the crew runs for its lead."""
        request = make_request(
            pb.SendMessageToSessionRequest,
            session_id=session_id,
            text=text,
            request_id=request_id or str(uuid.uuid4()),
        )
        return crews.said(await self._call("send_message_to_session", request))

    async def close_subagent(self, session_id: str) -> int:
        """End a child for good, and return how many turns that ended."""
        request = make_request(pb.CloseSubagentRequest, session_id=session_id)
        return int((await self._call("close_subagent", request)).canceled)
