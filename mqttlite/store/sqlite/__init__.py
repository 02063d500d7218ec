"""The store on disk: one SQLite database in a folder of its own. `store` is the way in."""
