// What comes before the addresses of this gateway: the path prefix of a reverse proxy, or nothing.

export const root = new URL("../..", import.meta.url).pathname.slice(0, -1);
