from anabranch.frontend.storage.messages import decode_proto as decode_proto, encode_proto as encode_proto
