"""The service: its core, its routes, its dashboard."""

import gc

# A start makes a million objects that nearly all stay: looking through them for rubbish at every 700 more took a fifth
# of its time. What is made a request is given back by its references alone.
gc.set_threshold(50_000, 20, 50)
