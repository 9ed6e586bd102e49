package wire

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
)

// checkShape compares a checked body with the type of v: member names exactly as tagged (encoding/json
// would also take them in another case), no others, and the JSON kind each place wants. Types that decode
// themselves are left to do so.
func checkShape(b []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return Invalid("body: %s.", err)
	}
	return shape(tree, reflect.TypeOf(v), nil)
}

var unmarshalerType = reflect.TypeFor[json.Unmarshaler]()

func shape(tree any, t reflect.Type, path []string) error {
	if t.Kind() == reflect.Pointer {
		if tree == nil {
			return nil
		}
		if t.Implements(unmarshalerType) {
			return nil
		}
		return shape(tree, t.Elem(), path)
	}
	if t.Kind() == reflect.Interface || reflect.PointerTo(t).Implements(unmarshalerType) {
		return nil
	}
	if tree == nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Map) {
		return nil
	}
	want, ok := kindOf(tree, t.Kind())
	if !ok {
		return Invalid("%s: expected %s, got %s.", pathOr(JoinPath(path), "body"), want, jsonName(tree))
	}
	switch val := tree.(type) {
	case []any:
		for i, e := range val {
			if err := shape(e, t.Elem(), append(path, strconv.Itoa(i))); err != nil {
				return err
			}
		}
	case map[string]any:
		return shapeObject(val, t, path)
	}
	return nil
}

func shapeObject(val map[string]any, t reflect.Type, path []string) error {
	if t.Kind() == reflect.Map {
		for k, e := range val {
			if err := shape(e, t.Elem(), append(path, k)); err != nil {
				return err
			}
		}
		return nil
	}
	fields := map[string]reflect.Type{}
	jsonFields(t, fields)
	// The first unknown name in order, so that the message does not change from one try to the next.
	unknown := ""
	for k := range val {
		if _, ok := fields[k]; !ok && (unknown == "" || k < unknown) {
			unknown = k
		}
	}
	if unknown != "" {
		return Invalid("%s: there is no such parameter.", JoinPath(append(path, unknown)))
	}
	for _, f := range reflect.VisibleFields(t) {
		name := jsonFieldName(f)
		if e, ok := val[name]; ok && name != "" {
			if err := shape(e, f.Type, append(path, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func jsonFields(t reflect.Type, into map[string]reflect.Type) {
	for _, f := range reflect.VisibleFields(t) {
		if name := jsonFieldName(f); name != "" {
			into[name] = f.Type
		}
	}
}

func jsonFieldName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "-" || !f.IsExported() || (f.Anonymous && name == "") {
		return ""
	}
	if name == "" {
		return f.Name
	}
	return name
}

// kindOf says what a Go kind wants and whether the decoded value is that.
func kindOf(tree any, k reflect.Kind) (string, bool) {
	switch k {
	case reflect.String:
		_, ok := tree.(string)
		return "a string", ok
	case reflect.Bool:
		_, ok := tree.(bool)
		return "true or false", ok
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n, ok := tree.(json.Number)
		if ok {
			_, err := strconv.ParseInt(n.String(), 10, 64)
			ok = err == nil
		}
		return "an integer", ok
	case reflect.Float32, reflect.Float64:
		_, ok := tree.(json.Number)
		return "a number", ok
	case reflect.Slice, reflect.Array:
		_, ok := tree.([]any)
		return "an array", ok
	default:
		_, ok := tree.(map[string]any)
		return "an object", ok
	}
}

func jsonName(tree any) string {
	switch v := tree.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		if len(v) > 32 {
			return "a number"
		}
		return v.String()
	case []any:
		return "an array"
	default:
		return "an object"
	}
}
