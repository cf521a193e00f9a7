"""Running services: `hopline up` opens all of them in this process, `hopline serve NAME` one."""
