"""What a plugin is shown of a session that it is handed."""

from __future__ import annotations

from hopline.hooks.v1 import extension_pb2 as pb
from hopline_directory import Directory, PluginRecord

from hopline_relay.domain.handing import Handed
from hopline_relay.plugins.grants import Shown


def shown_session(
    directory: Directory,
    plugin: PluginRecord,
    handed: Handed,
    shown: Shown | None,
    *,
    agent_id: str,
    channel: str,
) -> pb.HandedSession | None:
    """Return the session as the plugin may see it; None where it may know nothing of it.

    `shown`: what handing it over said. A plugin knows its own agents; of those of others it learns the id,
    and that only with a session in which it may act.
    """
    agent = directory.agent(plugin.workspace_id, agent_id)
    own = agent is not None and agent.plugin_id == plugin.id
    if shown is None and not own:
        return None
    session = pb.HandedSession(
        session_id=handed.session_id,
        agent_id=agent_id,
        channel=channel,
        depth=handed.depth,
        hook_generation=handed.generation,
        is_withheld=shown is None or shown.is_withheld,
    )
    if own and agent is not None:
        session.agent_slug, session.agent_name, session.agent_key = agent.slug, agent.name, agent.key
    return session
