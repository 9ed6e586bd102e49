package wire

// CheckJSON checks a body that is passed on unchanged (temporary body, filled in next).
func CheckJSON(b []byte) error { return nil }

func checkShape(b []byte, v any) error { return nil }
