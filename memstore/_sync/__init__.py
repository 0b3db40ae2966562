# generated from memstore/_async by scripts/generate_sync.py: edit there
"""The store, asynchronous. memstore/_sync is generated from this package."""
