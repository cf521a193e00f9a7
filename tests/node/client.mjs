// The official TypeScript client: lists the tools of a server, calls one, and prints both as JSON.
// node client.mjs URL REVISION TOOL ARGUMENTS, with the token in the environment variable TOKEN.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url, revision, name, given] = process.argv.slice(2);
const mode = revision === "legacy" ? revision : { pin: revision };
const client = new Client({ name: "typescript", version: "1" }, { versionNegotiation: { mode } });
const headers = { Authorization: `Bearer ${process.env.TOKEN}` };
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
const { tools } = await client.listTools();
const result = await client.callTool({ name, arguments: JSON.parse(given) });
console.log(JSON.stringify({ revision: client.getNegotiatedProtocolVersion(), tools, result }));
await client.close();
