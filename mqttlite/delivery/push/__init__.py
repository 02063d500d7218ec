"""Push: the messages of a queue as signed POST requests to an endpoint (webhooks).

`target` and `options` are what can be said of it; `addresses` and `guard` keep it from what is no endpoint;
`envelope` and `signature` make requests, `endpoint` sends them (aiohttp, an extra); `window` says how many at a time,
`pusher` pushes one queue, `service` all. Invariant: a message is acknowledged only by a response with a status of 2xx.
"""
