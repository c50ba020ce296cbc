"""Event simulations of a whole fleet in virtual time, with the code that runs in production."""
