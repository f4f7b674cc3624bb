//! Lists the types of files: the format of most matrices, and the mixtures with better formats for
//! some of them.

use std::str::FromStr;

use inkstone::DType;

macro_rules! file_types {
    ($($variant:ident = $number:literal, $name:literal, $dtype:ident;)*) => {
        /// A type of file, as llama.cpp names it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(non_camel_case_types, reason = "llama.cpp has these names")]
        pub enum FileType { $($variant),* }

        impl FileType {
            const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the number of the key `general.file_type`.
            pub fn number(self) -> u32 {
                match self { $(Self::$variant => $number),* }
            }

            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Returns the format of the tensors for which no rule has another one.
            pub fn dtype(self) -> DType {
                match self { $(Self::$variant => DType::$dtype),* }
            }
        }
    };
}

file_types! {
    F32 = 0, "F32", F32;
    F16 = 1, "F16", F16;
    BF16 = 32, "BF16", BF16;
    Q1_0 = 40, "Q1_0", Q1_0;
    Q2_0 = 41, "Q2_0", Q2_0;
    Q4_0 = 2, "Q4_0", Q4_0;
    Q4_1 = 3, "Q4_1", Q4_1;
    Q5_0 = 8, "Q5_0", Q5_0;
    Q5_1 = 9, "Q5_1", Q5_1;
    Q8_0 = 7, "Q8_0", Q8_0;
    Q2_K = 10, "Q2_K", Q2_K;
    Q2_K_S = 21, "Q2_K_S", Q2_K;
    Q3_K_S = 11, "Q3_K_S", Q3_K;
    Q3_K_M = 12, "Q3_K_M", Q3_K;
    Q3_K_L = 13, "Q3_K_L", Q3_K;
    Q4_K_S = 14, "Q4_K_S", Q4_K;
    Q4_K_M = 15, "Q4_K_M", Q4_K;
    Q5_K_S = 16, "Q5_K_S", Q5_K;
    Q5_K_M = 17, "Q5_K_M", Q5_K;
    Q6_K = 18, "Q6_K", Q6_K;
    IQ4_NL = 25, "IQ4_NL", IQ4_NL;
    IQ4_XS = 30, "IQ4_XS", IQ4_XS;
    TQ1_0 = 36, "TQ1_0", TQ1_0;
    TQ2_0 = 37, "TQ2_0", TQ2_0;
    MXFP4_MOE = 38, "MXFP4_MOE", MXFP4;
}

/// Short names of some types.
const ALIASES: [(&str, FileType); 4] = [
    ("Q3_K", FileType::Q3_K_M),
    ("Q4_K", FileType::Q4_K_M),
    ("Q5_K", FileType::Q5_K_M),
    ("MXFP4", FileType::MXFP4_MOE),
];

impl FileType {
    /// Returns the names of all types.
    pub fn names() -> String {
        Self::ALL.iter().map(|file_type| file_type.name()).collect::<Vec<_>>().join(" ")
    }
}

impl FromStr for FileType {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = Self::ALL.iter().map(|file_type| (file_type.name(), *file_type)).chain(ALIASES);
        let found = all.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, file_type)| file_type).ok_or_else(|| format!("is not a known type; known are {}", Self::names()))
    }
}
