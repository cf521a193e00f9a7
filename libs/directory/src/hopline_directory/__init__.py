"""The live view of who exists and the rules of who may reach whom."""

from hopline_directory.directory import Directory, Gap, needs_role, not_found, one_of
from hopline_directory.follower import Follower
from hopline_directory.guard import Guard, end_revoked
from hopline_directory.plugins import (
    PluginAgentRecord,
    PluginCommandRecord,
    PluginHookRecord,
    PluginRecord,
    PluginSkillRecord,
    PluginToolRecord,
)
from hopline_directory.records import (
    ADMIN,
    NO_ROLE,
    OPERATOR,
    VIEWER,
    AgentRecord,
    ConnectionRecord,
    ModelRecord,
    Policy,
    Rate,
    Relation,
    ServerToolRecord,
    UserRecord,
    WorkspaceRecord,
)
from hopline_directory.state import REVOKED_SECONDS, View

__all__ = [
    "ADMIN",
    "NO_ROLE",
    "OPERATOR",
    "REVOKED_SECONDS",
    "VIEWER",
    "AgentRecord",
    "ConnectionRecord",
    "Directory",
    "Follower",
    "Gap",
    "Guard",
    "ModelRecord",
    "PluginAgentRecord",
    "PluginCommandRecord",
    "PluginHookRecord",
    "PluginRecord",
    "PluginSkillRecord",
    "PluginToolRecord",
    "Policy",
    "Rate",
    "Relation",
    "ServerToolRecord",
    "UserRecord",
    "View",
    "WorkspaceRecord",
    "end_revoked",
    "needs_role",
    "not_found",
    "one_of",
]
