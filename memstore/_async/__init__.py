"""The store, asynchronous. memstore/_sync is generated from this package."""
