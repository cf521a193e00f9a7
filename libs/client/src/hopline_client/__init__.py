"""The Python client of a Hopline mesh: `Worker` is an agent, `Mesh` acts as one from a script."""

from hopline_rpc.errors import HoplineError

from hopline_client.connection import Connection
from hopline_client.crews import Child, Entry, Reported, Said, Session, Spoken
from hopline_client.host import Host
from hopline_client.left import Timer, Todo
from hopline_client.mesh import Mesh
from hopline_client.models import (
    Answer,
    Connected,
    Escalation,
    Inbox,
    Message,
    Party,
    Peer,
    Sent,
    Thread,
    ToHuman,
    ToolInfo,
    ToolResult,
)
from hopline_client.tools import ServerTool, ToolContext, ToolFailed, tool
from hopline_client.turn import Handler, Turn, TurnFailed
from hopline_client.worker import Worker

__all__ = [
    "Answer",
    "Child",
    "Connected",
    "Connection",
    "Entry",
    "Escalation",
    "Handler",
    "HoplineError",
    "Host",
    "Inbox",
    "Mesh",
    "Message",
    "Party",
    "Peer",
    "Reported",
    "Said",
    "Sent",
    "ServerTool",
    "Session",
    "Spoken",
    "Thread",
    "Timer",
    "ToHuman",
    "Todo",
    "ToolContext",
    "ToolFailed",
    "ToolInfo",
    "ToolResult",
    "Turn",
    "TurnFailed",
    "Worker",
    "tool",
]
