from anabranch.frontend.graph_editor.views import (
    SubGraphView as SubGraphView,
    make_view as make_view,
    make_view_from_scope as make_view_from_scope,
)
