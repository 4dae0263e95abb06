from anabranch.contrib.former_summaries import (
    audio_summary as audio_summary,
    histogram_summary as histogram_summary,
    image_summary as image_summary,
    merge_all_summaries as merge_all_summaries,
    merge_summary as merge_summary,
    scalar_summary as scalar_summary,
)
