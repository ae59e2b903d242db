"""What can be asked of the service, one file a resource. `Client` and `AsyncClient` take all of it in."""
