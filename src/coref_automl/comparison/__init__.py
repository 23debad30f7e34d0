"""Comparison: which checkpoint is better, and is that more than noise?"""
