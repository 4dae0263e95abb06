"""Operations on what outlives a step: variables and their updates, queues, tables, staging areas, accumulators."""
