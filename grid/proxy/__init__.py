"""The reference gateway and file delivery, on ``gateway`` and ``flow``. Not built yet."""
