from anabranch.contrib.learn.export_strategies import (
    extend_export_strategy as extend_export_strategy,
    garbage_collect_exports as garbage_collect_exports,
    get_most_recent_export as get_most_recent_export,
    get_temp_export_dir as get_temp_export_dir,
    get_timestamped_export_dir as get_timestamped_export_dir,
    make_best_model_export_strategy as make_best_model_export_strategy,
    make_export_strategy as make_export_strategy,
    make_parsing_export_strategy as make_parsing_export_strategy,
)
