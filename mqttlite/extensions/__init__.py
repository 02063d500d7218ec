"""What a program adds to the broker: hooks, and sinks for messages.

An `Extension` is an object with `start(host)`. A configuration names it in `[[extensions]]`, a program gives it to
`Broker(extensions=[…])`. `Host` is all that it gets of the broker.
"""

from mqttlite.extensions.extension import Extension
from mqttlite.extensions.hooks import Hooks
from mqttlite.extensions.host import Host
from mqttlite.extensions.incoming import Incoming
from mqttlite.extensions.publish_hook import Reject

__all__ = ["Extension", "Hooks", "Host", "Incoming", "Reject"]
