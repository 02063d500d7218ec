"""Mount points: a prefix of all topics of some clients. Listeners and the gateway have one."""

from mqttlite.topics.names import check_name
from mqttlite.wire.errors import TopicNameInvalid


def check_mount_point(mount_point: str) -> None:
    """Whole levels, or nothing. Raises `ValueError`."""
    if not mount_point:
        return
    if not mount_point.endswith("/"):
        raise ValueError(f"mount_point is {mount_point!r}: it ends with a slash")
    if mount_point.startswith("$"):
        raise ValueError(f"mount_point is {mount_point!r}: it may not begin with $")
    try:
        check_name(mount_point.encode())
    except TopicNameInvalid as error:
        raise ValueError(f"mount_point is {mount_point!r}: {error}") from None
