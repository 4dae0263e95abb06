from anabranch.frontend.platform.autograph import Feature as Feature, do_not_convert as do_not_convert
