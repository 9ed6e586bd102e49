package claude

import (
	"encoding/json"
	"strconv"
)

// Kind is the JSON type of a Node.
type Kind uint8

// The six JSON types.
const (
	Null Kind = iota
	Bool
	Number
	String
	Array
	Object
)

// Node is one JSON value. Numbers and strings keep the literal they were written
// with. A nil *Node reads like an absent value in every method that does not
// change it. Nodes are not safe for concurrent change.
type Node struct {
	Kind    Kind
	lit     string // literal of null, bool, number and string (with its quotes)
	Items   []*Node
	Members []Member
}

// Member is one member of an object; Name is decoded, lit is as written.
type Member struct {
	Name  string
	lit   string
	Value *Node
}

// NewString returns a string value.
func NewString(s string) *Node { return &Node{Kind: String, lit: Quote(s)} }

// NewInt returns a number.
func NewInt(n int64) *Node { return &Node{Kind: Number, lit: strconv.FormatInt(n, 10)} }

// NewBool returns true or false.
func NewBool(b bool) *Node { return &Node{Kind: Bool, lit: strconv.FormatBool(b)} }

// NewNull returns null.
func NewNull() *Node { return &Node{Kind: Null, lit: "null"} }

// NewArray returns an array of the given values, which it takes over.
func NewArray(items ...*Node) *Node { return &Node{Kind: Array, Items: items} }

// NewObject returns an object from name, value pairs. A value is a string, an
// int, an int64, a bool, nil (null) or a *Node; anything else is a programmer
// error and panics.
func NewObject(pairs ...any) *Node {
	n := &Node{Kind: Object, Members: make([]Member, 0, len(pairs)/2)}
	for i := 0; i+1 < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			panic("claude: member name is not a string")
		}
		n.Set(name, nodeOf(pairs[i+1]))
	}
	return n
}

func nodeOf(v any) *Node {
	switch v := v.(type) {
	case nil:
		return NewNull()
	case string:
		return NewString(v)
	case int:
		return NewInt(int64(v))
	case int64:
		return NewInt(v)
	case bool:
		return NewBool(v)
	case *Node:
		if v == nil {
			return NewNull()
		}
		return v
	default:
		panic("claude: value of a type that has no JSON form")
	}
}

// Get returns the member with that decoded name, nil when n is no object or has
// no such member.
func (n *Node) Get(name string) *Node {
	if n == nil || n.Kind != Object {
		return nil
	}
	for i := range n.Members {
		if n.Members[i].Name == name {
			return n.Members[i].Value
		}
	}
	return nil
}

// At walks members by name.
func (n *Node) At(names ...string) *Node {
	for _, name := range names {
		n = n.Get(name)
	}
	return n
}

// Set replaces the member in place or adds it at the end.
func (n *Node) Set(name string, v *Node) {
	for i := range n.Members {
		if n.Members[i].Name == name {
			n.Members[i].Value = v
			return
		}
	}
	n.Members = append(n.Members, Member{Name: name, lit: Quote(name), Value: v})
}

// Delete removes the member if it is there.
func (n *Node) Delete(name string) {
	for i := range n.Members {
		if n.Members[i].Name == name {
			n.Members = append(n.Members[:i:i], n.Members[i+1:]...)
			return
		}
	}
}

// Is reports whether n is a value of that kind.
func (n *Node) Is(k Kind) bool { return n != nil && n.Kind == k }

// IsNull reports whether n is absent or null.
func (n *Node) IsNull() bool { return n == nil || n.Kind == Null }

// Str returns the decoded string, "" for anything else.
func (n *Node) Str() string {
	if !n.Is(String) {
		return ""
	}
	s, _ := unquote(n.lit)
	return s
}

// Type returns the member "type" as a string.
func (n *Node) Type() string { return n.Get("type").Str() }

// Int returns the number when it is an integer that fits.
func (n *Node) Int() (int64, bool) {
	if !n.Is(Number) {
		return 0, false
	}
	if i, err := strconv.ParseInt(n.lit, 10, 64); err == nil {
		return i, true
	}
	f, err := strconv.ParseFloat(n.lit, 64)
	if err != nil || f != float64(int64(f)) {
		return 0, false
	}
	return int64(f), true
}

// IsTrue reports whether n is the value true.
func (n *Node) IsTrue() bool { return n.Is(Bool) && n.lit == "true" }

// Elems returns the items of an array, nil for anything else.
func (n *Node) Elems() []*Node {
	if !n.Is(Array) {
		return nil
	}
	return n.Items
}

// Clone returns a deep copy.
func (n *Node) Clone() *Node {
	if n == nil {
		return nil
	}
	c := &Node{Kind: n.Kind, lit: n.lit}
	if n.Items != nil {
		c.Items = make([]*Node, len(n.Items))
		for i, it := range n.Items {
			c.Items[i] = it.Clone()
		}
	}
	if n.Members != nil {
		c.Members = make([]Member, len(n.Members))
		for i, m := range n.Members {
			c.Members[i] = Member{Name: m.Name, lit: m.lit, Value: m.Value.Clone()}
		}
	}
	return c
}

// Shallow returns a copy whose members and items are shared with n, so that Set
// and Delete on the copy leave n alone.
func (n *Node) Shallow() *Node {
	c := *n
	c.Items = append([]*Node(nil), n.Items...)
	c.Members = append([]Member(nil), n.Members...)
	return &c
}

// Bytes returns the compact encoding.
func (n *Node) Bytes() []byte { return n.append(nil) }

// Text returns the compact encoding as a string.
func (n *Node) Text() string { return string(n.append(nil)) }

// MarshalJSON implements json.Marshaler.
func (n *Node) MarshalJSON() ([]byte, error) { return n.append(nil), nil }

var _ json.Marshaler = (*Node)(nil)

func (n *Node) append(b []byte) []byte {
	if n == nil {
		return append(b, "null"...)
	}
	switch n.Kind {
	case Array:
		b = append(b, '[')
		for i, it := range n.Items {
			if i > 0 {
				b = append(b, ',')
			}
			b = it.append(b)
		}
		return append(b, ']')
	case Object:
		b = append(b, '{')
		for i, m := range n.Members {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, m.lit...)
			b = append(b, ':')
			b = m.Value.append(b)
		}
		return append(b, '}')
	case Null, Bool, Number, String:
		return append(b, n.lit...)
	}
	return b
}
