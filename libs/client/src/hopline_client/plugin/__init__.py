"""A plugin in a dozen lines: its endpoint, its tools, what it hears of, and what it does in the mesh.

For example::

    plugin = Plugin("shop", name="Shop", permissions=["session", "agents.read"], endpoint="127.0.0.1:7500")

    @plugin.tool
    def stock(item: str) -> int:
        '''Say how many of an item there are.'''
        return STOCK[item]

    @plugin.on("session_started")
    async def greet(event: Event) -> None:
        await event.chat.spawn("Look up what is new.", agent="shop-librarian")

    @plugin.hook("inter_agent_message")
    def no_prices(message: Hooked) -> str | Veto | None:
        return Veto("prices stay in the shop") if "EUR" in message.text else None

    plugin.main()  # `serve`, or `manifest` for what `hopline plugin install` takes
"""

from hopline_client.plugin.chat import Chat, Delivered, PeerSession, Spawned
from hopline_client.plugin.events import Event
from hopline_client.plugin.hooks import Acting, Hooked, Rewrite, Veto
from hopline_client.plugin.host import PluginAgent, PluginHost, PluginModel
from hopline_client.plugin.plugin import Plugin

__all__ = [
    "Acting",
    "Chat",
    "Delivered",
    "Event",
    "Hooked",
    "PeerSession",
    "Plugin",
    "PluginAgent",
    "PluginHost",
    "PluginModel",
    "Rewrite",
    "Spawned",
    "Veto",
]
