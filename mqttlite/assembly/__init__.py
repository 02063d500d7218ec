"""Builds and connects the objects of one run of a broker. It is the only place where the packages meet.

Start reading in `assembly`, which has the order in which the groups are built, opened and closed. Each other module
builds one group of objects from the `Runtime` and the groups before it:

- `runtime`: the core, the loop driver, the store, the clocks, the event hub
- `permissions`, `logins`: rules for publishing and subscribing, authentication
- `delivery`: the queues and their push
- `network`: the listeners of MQTT and their certificates
- `telemetry`, `tracing`: reports, `$SYS`, presence; the dataset and the tracers of messages
- `administration`, `http_gateway`: interfaces for operators and HTTP clients

Add a new adapter to the module of its group. Invariant: before `open`, nothing here holds a file, a socket or a thread,
so an assembly that fails to build needs no cleanup.
"""

from mqttlite.assembly.assembly import Assembly

__all__ = ["Assembly"]
