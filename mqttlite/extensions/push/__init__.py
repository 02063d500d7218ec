"""Push: sends the messages of a queue as signed POST requests to an endpoint (webhooks).

Its options are `options`, and `push_target` of queues; `guard` restricts endpoints; `envelope` and `signature` build
requests, `endpoint` sends them (with aiohttp, an extra); `window` limits concurrent requests; `pusher` pushes one
queue, `service` all queues. Invariant: only a 2xx response acknowledges a message.
"""
