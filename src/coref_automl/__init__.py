"""Adapt a Korean encoder to entities, measure every checkpoint honestly, choose the one that is truly best."""
