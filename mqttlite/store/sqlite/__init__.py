"""The store on disk: one SQLite database in its own folder. Start reading in `store`."""
