"""Builds the objects of one run of a broker and connects them: the only place where the packages meet.

`assembly` has the order in which the groups are built, opened and closed, and is the place to begin to read. Each other
module builds one group of objects, from the `Runtime` and the groups before it:

- `runtime`: the core, the loop driver, the store, the clocks, the event hub
- `schemas`, `permissions`, `logins`: which payloads topics take, who may publish and subscribe, who a client is
- `delivery`: the queues and their push
- `network`: the listeners of MQTT and their certificates
- `telemetry`, `tracing`: reports, `$SYS`, presence; the dataset and the tracers of messages
- `administration`, `http_gateway`: what operators and HTTP clients use

A new adapter belongs into the module of its group. Invariant: before `open`, nothing here holds a file, a socket or a
thread, so that an assembly that could not be built needs no end.
"""

from mqttlite.assembly.assembly import Assembly

__all__ = ["Assembly"]
