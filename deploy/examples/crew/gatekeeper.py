"""A plugin whose hook keeps passwords from going from agent to agent.

The mesh runs (`make up`); then

export HOPLINE_PLUGIN_SECRET_FILE=build/gatekeeper.secret
.venv/bin/python deploy/examples/crew/gatekeeper.py manifest > build/gatekeeper.json
hopline plugin install build/gatekeeper.json --yes --secret-file build/gatekeeper.secret
.venv/bin/python deploy/examples/crew/gatekeeper.py
"""

import os

from hopline_client.plugin import Hooked, Plugin, Veto

plugin = Plugin("gatekeeper", name="Gatekeeper", endpoint=os.environ.get("GATEKEEPER", "127.0.0.1:7500"))


@plugin.hook("inter_agent_message", fail_mode="fail_closed")
def keep_passwords(message: Hooked) -> Veto | None:
    """Say no to what names a password; whoever said it is told so."""
    return Veto("a secret stays where it is") if "password" in message.text else None


if __name__ == "__main__":
    plugin.main()
