"""Parts of logs, apart from what is in their entries: numbers of entries, segments, and the positions of readers."""
