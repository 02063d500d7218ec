"""What becomes of a message that a relay brings: it was published at another broker.

By its `target`, which is the subscription identifier in its packet, it is for the sessions that subscribe to its topic
(0), or only a copy of a retained message (`RETAINED_COPY`). Invariant: a retained message is kept by a copy alone, so
that each broker has all of them, whoever subscribes there.
"""

from typing import Final

RETAINED_COPY: Final = 1
