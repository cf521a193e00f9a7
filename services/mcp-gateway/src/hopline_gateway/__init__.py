"""The MCP gateway: MCP over streamable HTTP into RPCs."""
