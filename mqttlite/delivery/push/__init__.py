"""Push: sends the messages of a queue as signed POST requests to an endpoint (webhooks).

`target` and `options` are its options; `addresses` and `guard` restrict endpoints; `envelope` and `signature` build
requests, `endpoint` sends them (with aiohttp, an extra); `window` limits concurrent requests; `pusher` pushes one
queue, `service` all queues. Invariant: only a 2xx response acknowledges a message.
"""
