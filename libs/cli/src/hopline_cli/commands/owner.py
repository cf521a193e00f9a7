"""`hopline escalations|answer|withdraw`: what agents ask their owners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hopline_cli.output import Json, Output
from hopline_cli.verbs import Cursor, Limit, command, text_or_file

if TYPE_CHECKING:
    from hopline_cli.mesh import Mesh

app = typer.Typer()

Question = Annotated[str, typer.Argument(metavar="ID", help="The question, esc_….")]


@command(app, "escalations")
async def escalations(
    mesh: Mesh,
    out: Output,
    agent: Annotated[
        str, typer.Option("--agent", metavar="A", help="Only of this agent.", show_default=False)
    ] = "",
    everything: Annotated[bool, typer.Option("--all", help="Those that have ended as well.")] = False,
    limit: Limit = 50,
    cursor: Cursor = "",
) -> None:
    """List what agents ask their owners, newest first: what is pending, or everything."""
    from hopline.relay.v1 import escalation_pb2 as pb

    from hopline_cli import shapes
    from hopline_cli.mesh import pages

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        request = pb.ListEscalationsRequest(agent=agent, all=everything, page_size=size, page_token=at)
        page = await mesh.escalations.ListEscalations(request)
        return [shapes.escalation(each) for each in page.escalations], page.next_page_token

    items, rest = await pages(read, limit, cursor)
    if out.as_json:
        out.rows("escalations", items, [], rest)
        return
    for each in items:
        _show(out, each)
    if not items:
        out.line("nothing has been asked" if everything else "no question is pending", "dim")
    if rest:
        out.line(f"there are more: --cursor {rest}", "dim")


def _show(out: Output, each: Json) -> None:
    out.line(f"{each['agent']['name']} asks {each['owner']['name']} · {each['status']}", "bold cyan")
    until = each["ended_at"] or f"until {each['expires_at']}"
    out.line(f"{each['created_at']} · {until} · {each['id']}", "dim")
    out.line(each["question"])
    if each["options"]:
        out.line(f"options: {' | '.join(each['options'])}")
    if each["answer"] is not None:
        out.line(f"→ {each['answer']}", "green" if each["status"] == "answered" else "yellow")
    out.line("")


@command(app, "answer")
async def answer(
    mesh: Mesh,
    out: Output,
    escalation_id: Question,
    text: Annotated[str, typer.Argument(help="The answer; @FILE reads a file, - standard input.")],
) -> None:
    """Answer a question that an agent asked its owner."""
    from hopline.relay.v1 import escalation_pb2 as pb

    request = pb.AnswerEscalationRequest(escalation_id=escalation_id, text=text_or_file(text, "TEXT") or "")
    ended = (await mesh.escalations.AnswerEscalation(request)).escalation
    _ended(out, ended, f"answered {ended.agent.name}")


@command(app, "withdraw")
async def withdraw(
    mesh: Mesh,
    out: Output,
    escalation_id: Question,
    reason: Annotated[str, typer.Argument(metavar="[REASON]", help="Why, for the agent to read.")] = "",
) -> None:
    """End a question that an agent asked its owner, without an answer."""
    from hopline.relay.v1 import escalation_pb2 as pb

    request = pb.WithdrawEscalationRequest(escalation_id=escalation_id, reason=reason)
    ended = (await mesh.escalations.WithdrawEscalation(request)).escalation
    _ended(out, ended, f"withdrew the question of {ended.agent.name}")


def _ended(out: Output, ended: Any, said: str) -> None:
    from hopline_cli import shapes

    found = shapes.escalation(ended)
    out.result(found, said, f"question {found['id']}, thread {found['thread_id']}")
