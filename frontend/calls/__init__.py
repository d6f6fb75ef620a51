"""Calls of compiled parts with torch tensors: by Python, and by native entries that mean the same."""
