//! Records the serialized fields of parameters: their paths, types and values.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Display},
};

use serde::{
    Serialize, Serializer,
    ser::{self, Impossible},
};

/// A field, over all samples of a struct.
#[derive(Debug, Default)]
pub(super) struct Field {
    /// The types: one, unless samples differ.
    pub types: BTreeSet<String>,
    /// The values of scalars.
    pub values: BTreeSet<String>,
    /// Whether it was an option without a value.
    pub was_none: bool,
    /// Whether it was an option with a value.
    pub was_some: bool,
}

impl Field {
    /// Returns the type as the templates' lists write it: `u32?` is optional, `u32[]` a list.
    pub fn type_name(&self) -> String {
        let types: Vec<_> = self.types.iter().map(String::as_str).collect();
        let optional = if self.was_none || self.was_some { "?" } else { "" };
        format!("{}{optional}", types.join(" or "))
    }
}

/// The fields of a struct by their paths, as `norm.eps`; `parts[].rows` is a field of a list's
/// elements.
#[derive(Debug, Default)]
pub(super) struct Fields(pub BTreeMap<String, Field>);

impl Fields {
    /// Adds the fields of a sample.
    pub fn add(&mut self, sample: &impl Serialize) {
        let recorder = Recorder { fields: self, path: String::new(), named: None };
        sample.serialize(recorder).expect("parameters can be serialized");
    }
}

/// Records one value.
struct Recorder<'a> {
    fields: &'a mut Fields,
    path: String,
    /// The name of the newtype around it.
    named: Option<&'static str>,
}

impl Recorder<'_> {
    fn field(&mut self) -> &mut Field {
        self.fields.0.entry(self.path.clone()).or_default()
    }

    fn scalar(mut self, type_name: &str, value: String) -> Result<(), Wrong> {
        let type_name = self.named.unwrap_or(type_name).to_string();
        let field = self.field();
        field.types.insert(type_name);
        field.values.insert(value);
        Ok(())
    }

    fn child(&mut self, path: String) -> Recorder<'_> {
        Recorder { fields: self.fields, path, named: None }
    }
}

macro_rules! scalars {
    ($($function:ident: $type:ty = $name:literal;)*) => {
        $(fn $function(self, value: $type) -> Result<(), Wrong> {
            self.scalar($name, value.to_string())
        })*
    };
}

macro_rules! not_used {
    ($($function:ident($($argument:ty),*) -> $ok:ty;)*) => {
        $(fn $function(self, $(_: $argument),*) -> Result<$ok, Wrong> {
            Err(ser::Error::custom(concat!("parameters have no use for ", stringify!($function))))
        })*
    };
}

impl<'a> Serializer for Recorder<'a> {
    type Ok = ();
    type Error = Wrong;
    type SerializeSeq = Elements<'a>;
    type SerializeStruct = Elements<'a>;
    type SerializeTuple = Impossible<(), Wrong>;
    type SerializeTupleStruct = Impossible<(), Wrong>;
    type SerializeTupleVariant = Impossible<(), Wrong>;
    type SerializeMap = Impossible<(), Wrong>;
    type SerializeStructVariant = Impossible<(), Wrong>;

    scalars! {
        serialize_bool: bool = "bool";
        serialize_u32: u32 = "u32";
        serialize_u64: u64 = "u32";
        serialize_str: &str = "str";
    }

    not_used! {
        serialize_i8(i8) -> ();
        serialize_i16(i16) -> ();
        serialize_i32(i32) -> ();
        serialize_i64(i64) -> ();
        serialize_u8(u8) -> ();
        serialize_u16(u16) -> ();
        serialize_f32(f32) -> ();
        serialize_f64(f64) -> ();
        serialize_char(char) -> ();
        serialize_bytes(&[u8]) -> ();
        serialize_unit() -> ();
        serialize_unit_struct(&'static str) -> ();
        serialize_tuple(usize) -> Self::SerializeTuple;
        serialize_tuple_struct(&'static str, usize) -> Self::SerializeTupleStruct;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Self::SerializeTupleVariant;
        serialize_map(Option<usize>) -> Self::SerializeMap;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> Self::SerializeStructVariant;
    }

    fn serialize_none(mut self) -> Result<(), Wrong> {
        self.field().was_none = true;
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(mut self, value: &T) -> Result<(), Wrong> {
        self.field().was_some = true;
        value.serialize(self)
    }

    fn serialize_unit_variant(self, name: &'static str, _: u32, variant: &'static str) -> Result<(), Wrong> {
        self.scalar(name, variant.to_string())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(mut self, name: &'static str, value: &T) -> Result<(), Wrong> {
        self.named = Some(name);
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), Wrong> {
        Err(ser::Error::custom("parameters have no use for serialize_newtype_variant"))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Elements<'a>, Wrong> {
        Ok(Elements(self))
    }

    fn serialize_struct(mut self, name: &'static str, _: usize) -> Result<Elements<'a>, Wrong> {
        if !self.path.is_empty() {
            self.field().types.insert(name.to_string());
        }
        Ok(Elements(self))
    }
}

/// Records the elements of a list or the fields of a struct.
struct Elements<'a>(Recorder<'a>);

impl ser::SerializeSeq for Elements<'_> {
    type Ok = ();
    type Error = Wrong;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Wrong> {
        let path = format!("{}[]", self.0.path);
        value.serialize(self.0.child(path.clone()))?;
        let types: Vec<_> = self.0.fields.0[&path].types.iter().map(|name| format!("{name}[]")).collect();
        self.0.field().types.extend(types);
        Ok(())
    }

    fn end(self) -> Result<(), Wrong> {
        Ok(())
    }
}

impl ser::SerializeStruct for Elements<'_> {
    type Ok = ();
    type Error = Wrong;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), Wrong> {
        let path = if self.0.path.is_empty() { key.to_string() } else { format!("{}.{key}", self.0.path) };
        value.serialize(self.0.child(path))
    }

    fn end(self) -> Result<(), Wrong> {
        Ok(())
    }
}

/// Something that parameters are not made of.
#[derive(Debug)]
pub(super) struct Wrong(String);

impl Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

impl ser::Error for Wrong {
    fn custom<T: Display>(message: T) -> Self {
        Self(message.to_string())
    }
}
