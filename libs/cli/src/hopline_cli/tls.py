"""How this side of an HTTPS connection proves itself and whom it trusts; the services' own variables say."""

from __future__ import annotations

import os
import ssl


def client_context() -> ssl.SSLContext:
    """Trust HOPLINE_TLS_CA (else the system's authorities); show HOPLINE_TLS_CERT where one is set."""
    context = ssl.create_default_context(cafile=os.environ.get("HOPLINE_TLS_CA") or None)
    certificate = os.environ.get("HOPLINE_TLS_CERT")
    if certificate:
        context.load_cert_chain(certificate, os.environ.get("HOPLINE_TLS_KEY") or None)
    return context
